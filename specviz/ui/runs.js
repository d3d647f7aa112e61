/* The table of runs. */
(function () {
  "use strict";

  const { app, h, on, open, place, KINDS } = SpecVizApp;

  SpecVizApp.table = ({ element }) => {
    const box = place(element, "table");
    const search = h("input", { type: "search", class: "svp-input svp-search", placeholder: "Search title, method, model", "aria-label": "Search the runs" });
    const body = h("tbody");
    const head = ["Run", "Method", "Model", "Tokens", "Steps", "Tokens/step", "Ended", "When"];
    const grid = h("table", { class: "svp-grid" }, h("thead", {}, h("tr", {}, head.map((text, i) => h("th", { scope: "col", class: i > 2 && i < 6 ? "svp-num" : null }, text)))), body);
    const empty = h("p", { class: "svp-empty" });
    function draw() {
      const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = app.runs.filter((run) => words.every((w) => `${run.title} ${run.method} ${run.model} ${KINDS[run.kind]}`.toLowerCase().includes(w)));
      const rows = [];
      let kind = "";
      for (const run of found) {
        if (run.kind !== kind) {
          kind = run.kind;
          rows.push(h("tr", { class: "svp-kind" }, h("th", { colspan: head.length, scope: "colgroup" }, KINDS[kind] || kind)));
        }
        const when = run.created ? new Date(run.created) : null;
        const go = () => { app.goTo("inspect"); open(run.id); };
        const number = (value, digits) => (value === null || value === undefined ? "" : value.toFixed(digits));
        rows.push(
          h("tr", { class: run.id === app.current ? "svp-now" : null, onclick: go },
            h("td", {}, h("button", { type: "button", class: "svp-link", onclick: (event) => { event.stopPropagation(); go(); } }, run.title)),
            h("td", {}, run.method || "", run.lossless === false ? " (lossy)" : ""), h("td", {}, run.model || ""),
            h("td", { class: "svp-num" }, number(run.tokens, 0)), h("td", { class: "svp-num" }, number(run.steps, 0)), h("td", { class: "svp-num" }, number(run.tokens_per_step, 2)),
            h("td", {}, run.kind === "live" ? run.state : run.stop || ""), h("td", {}, when && !Number.isNaN(+when) ? when.toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : "")));
      }
      body.replaceChildren(...rows);
      empty.textContent = found.length ? "" : app.runs.length ? "No run matches." : "There is no recorded run yet: run a method on the Inspect page.";
      grid.hidden = !found.length;
    }
    search.addEventListener("input", draw);
    on("runs", draw);
    on("current", draw);
    box.append(search, grid, empty);
    draw();
  };
})();
