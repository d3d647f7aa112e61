/* The widget's side in the notebook: the page in a frame, and what is selected as traits, both ways. PAGE stands above:
   the page, with a mark where what is packed goes. */

const TRAITS = ["step", "token", "node"];
const CHUNK = 1 << 15; // bytes that are turned into text at a time

/** @param {DataView} view */
function base64(view) {
  const bytes = new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  let text = "";
  for (let at = 0; at < bytes.length; at += CHUNK) text += String.fromCharCode(...bytes.subarray(at, at + CHUNK));
  return btoa(text);
}

/** Whether the notebook is dark; undefined where it does not say. */
function darkness() {
  const { jpThemeLight, vscodeThemeKind } = document.body.dataset;
  if (jpThemeLight) return jpThemeLight === "false";
  return vscodeThemeKind ? vscodeThemeKind.includes("dark") : undefined;
}

function render({ model, el }) {
  const frame = document.createElement("iframe");
  frame.title = "Trace inspector";
  frame.setAttribute("sandbox", "allow-scripts allow-downloads");
  frame.style.cssText = "display:block;width:100%;border:0;border-radius:8px";
  const size = () => (frame.style.height = `${model.get("height")}px`);
  size();
  const send = (values) => frame.contentWindow?.postMessage({ specviz: values }, "*");
  let hearing = false; // what the page says is not sent back: it may have changed since
  /** @param {MessageEvent} event */
  const hear = ({ source, data }) => {
    if (source !== frame.contentWindow || !data?.specviz) return;
    const { ready, selected } = data.specviz;
    if (ready) send({ dark: darkness(), step: model.get("step"), ...chosen() });
    if (!selected) return;
    hearing = true;
    for (const name of TRAITS) model.set(name, selected[name]);
    hearing = false;
    model.save_changes();
  };
  /** The selection that Python asks for: a node, a token, or none. */
  const chosen = () => {
    const { token, node } = Object.fromEntries(TRAITS.map((name) => [name, model.get(name)]));
    return node !== null ? { node } : { token };
  };
  const heard = TRAITS.map((name) => [`change:${name}`, () => hearing || send({ [name]: model.get(name) })]);
  heard.push(["change:height", size]);
  for (const [name, act] of heard) model.on(name, act);
  addEventListener("message", hear);
  frame.srcdoc = PAGE.replace("@packed@", () => base64(model.get("packed")));
  // the run's sentence, an output of its own for notebooks without the widget, is not seen beside it
  const style = document.createElement("style");
  style.textContent = `.specviz-${model.get("key")} { display: none }`;
  el.append(frame, style);
  return () => {
    removeEventListener("message", hear);
    for (const [name, act] of heard) model.off(name, act);
  };
}

export default { render };
