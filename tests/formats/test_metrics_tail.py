from hypothesis import given
from hypothesis import strategies as st

from gloam.formats.metrics import MetricsFiles, MetricsTail

ROWS = [{"seed": i % 2, "iteration": i // 2, "qd_score": i / 3} for i in range(12)]
STEPS = st.lists(st.sampled_from(["append", "part", "finish", "cut", "damage"]), max_size=8)


@given(steps=STEPS, data=st.data())
def test_what_follows_a_log_reads_what_a_reader_of_the_whole_reads(steps, data, tmp_path_factory):
    files = MetricsFiles(tmp_path_factory.mktemp("tail"))
    tail = MetricsTail(files.log.parent, "run")
    rows = iter(ROWS)
    for step in steps:
        if step == "append":
            files.append([row for row, _ in zip(rows, "ab", strict=False)], run="run", sync=False)
        elif step == "part":  # a line that is being written
            with open(files.log, "ab") as file:
                file.write(b"0123 {")
        elif step == "finish":
            files.write(files.read_what_is_whole(run="run")[0], run="run")
        elif files.log.is_file():
            content = files.log.read_bytes()
            if step == "cut":
                files.log.write_bytes(content[: data.draw(st.integers(0, len(content)))])
            else:
                files.log.write_bytes(content.replace(b"qd", b"QD", 1))
        found, errors = tail.read()
        whole, expected = files.read_what_is_whole(run="run")
        assert found.to_dict("records") == whole.to_dict("records")
        assert [str(error) for error in errors] == [str(error) for error in expected]
        assert tail.read()[0] is found
