"""How results and searches show themselves: a line of text, and a card in notebooks."""

from typing import TYPE_CHECKING

import numpy as np

from gloam import cards
from gloam.archives.elites_card import archive_figures, thumbnail

if TYPE_CHECKING:
    from gloam.drivers.result import Result
    from gloam.drivers.search import Search


def result_text(result: "Result") -> str:
    """A line on a result."""
    parts = [_seeds(result), *(f"{value} {name}" for name, value in _progress(result).items())]
    mean = {name: np.mean(values) for name, values in _by_seed(result).items()}
    parts.append(f"QD score {mean['QD score']:.2f}, coverage {mean['coverage']:.1%}")
    return f"Result({', '.join(parts)})"


def result_card(result: "Result") -> str:
    """HTML of a result: means over seeds with their standard errors, and the first seed's map."""
    figures = {"seeds": _seeds(result)} | _progress(result)
    formats = {"QD score": "{:,.2f}", "coverage": "{:.1%}", "best objective": "{:.4g}"}
    for name, values in _by_seed(result).items():
        shown = formats[name].format(np.mean(values))
        if len(values) > 1:
            error = np.std(values, ddof=1) / len(values) ** 0.5
            shown += f" ± {formats[name].format(error)}"
        figures[name] = shown
    if result.run_dir is not None:
        figures["folder"] = str(result.run_dir)
    pictures = [thumbnail(result.elites)] if len(result.elites) else []
    table = result.metrics
    if "qd_score" in table and len(table):
        means = table.pivot_table("qd_score", "iteration").to_numpy().ravel()
        pictures.append(cards.sparkline(means, "QD score over the iterations"))
    return cards.card("Result", figures, pictures)


def search_text(search: "Search") -> str:
    """A line on a search."""
    name, elites = type(search.algorithm).__name__, search.elites
    done = f"seed {search.seed}, iteration {search.iteration:,}"
    score = f"QD score {elites.qd_score:.2f}, coverage {elites.coverage:.1%}"
    return f"Search({name}, {done}, {score})"


def search_card(search: "Search") -> str:
    """HTML of a search."""
    elites, batch = search.elites, search.algorithm.emitter.num_solutions
    figures = {
        "seed": f"{search.seed}",
        "iteration": f"{search.iteration:,}",
        "evaluations": f"{search.iteration * batch:,}",
    }
    pictures = [thumbnail(elites)] if len(elites) else []
    title = f"Search with {type(search.algorithm).__name__}"
    return cards.card(title, figures | archive_figures(elites), pictures)


def _seeds(result: "Result") -> str:
    seeds = result.seeds
    return f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds"


def _progress(result: "Result") -> dict[str, str]:
    """Iterations and evaluations of each seed, where metrics were logged."""
    table = result.metrics
    return {
        name: f"{int(table[column].to_numpy().max()):,}"
        for name, column in (("iterations", "iteration"), ("evaluations", "evaluations"))
        if column in table and len(table)
    }


def _by_seed(result: "Result") -> dict[str, list[float]]:
    found = [result.elites_by_seed[seed] for seed in result.seeds]
    values = {
        "QD score": [elites.qd_score for elites in found],
        "coverage": [elites.coverage for elites in found],
    }
    if all(len(elites) for elites in found):
        values["best objective"] = [elites.best_objective for elites in found]
    return values
