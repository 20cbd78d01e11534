// Browsers start no workers on pages that are opened from disk. Here the search of the theme, which
// looks for the name IFrameWorker, runs its worker in a hidden frame instead.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super();
      const source = new URL(address, document.baseURI).href.replaceAll('"', "%22");
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.received = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      frame.srcdoc =
        "<script>postMessage = (data) => frameElement.received(data)</" + "script>" +
        `<script src="${source}"></` + "script>";
      this.loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
      this.frame = frame;
      document.body.append(frame);
    }

    postMessage(data) {
      this.loaded.then(() => {
        this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
