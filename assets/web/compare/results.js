/* Page "Compare", where lanes differ: stretches, the check against plain decoding, the table of numbers. */

import { facts, format, h, plural, probability } from "specviz/base/dom.js";
import { inspect, pause, seek, setClock } from "specviz/compare/race.js";
import { colored, drawn, mark, name, page, part, settings } from "specviz/compare/state.js";
import { DiffView } from "specviz/inspect/diff.js";

const BETTER = { tokens_per_step: 1, speedup: 1, tokens_per_s: 1, draft_efficiency: 1, steps: -1 };
const VERDICTS = {
  identical: ["✓", "identical to plain decoding"],
  "near tie": ["≈", "near tie"],
  "lossy by design": ["≈", "lossy by design"],
  "other draws": ["↺", "other draws"],
  bug: ["⚠", "bug"],
  unknown: ["○", "not checked"],
  checking: ["…", "checking"],
  waiting: ["…", "not over yet"],
};

export function drawStretches() {
  const place = part("stretches");
  if (!page.stretches.length) {
    return place.replaceChildren(
      h(
        "p",
        { class: "svc-help" },
        drawn().length < 2
          ? "There is only one run."
          : "No method wins a stretch of the output that all of them share.",
      ),
    );
  }
  place.replaceChildren(
    ...page.stretches.map((one) => {
      const winner = one.lanes[one.lane];
      const text = winner.lane.pieces.phrase(winner.lane.output.slice(one.from, one.to), 90);
      const others = one.lanes
        .map((lane, n) => [lane, one.forwards[n]])
        .filter(([lane]) => lane !== winner)
        .map(([lane, n]) => `${lane.mark} ${n}`)
        .join(", ");
      return colored(
        h(
          "div",
          { class: "svc-stretch" },
          h(
            "button",
            {
              type: "button",
              class: "svc-go",
              onclick: () => show(one),
              "aria-label":
                `Tokens ${one.from + 1} to ${one.to}: ${name(winner)} needs ` +
                `${one.forwards[one.lane]} forwards, ${one.gain} fewer than the next`,
            },
            mark(winner),
            h("span", { class: "svc-gain" }, h("b", {}, `−${one.gain}`), ` ${one.gain === 1 ? "forward" : "forwards"}`),
            h(
              "span",
              { class: "svc-where" },
              `tokens ${(one.from + 1).toLocaleString("en")}–${one.to.toLocaleString("en")}: ` +
                `${name(winner)} ${one.forwards[one.lane]}, ${others}`,
            ),
            h("code", {}, text),
          ),
          h(
            "button",
            {
              type: "button",
              class: "svp-link",
              onclick: () => inspect(winner, winner.lane.stepOf[one.from]),
              "aria-label": `Open ${name(winner)} on Inspect at token ${one.from + 1}`,
            },
            "Inspect ↗",
          ),
        ),
        winner.n,
      );
    }),
  );
}

function show(one) {
  pause();
  page.mark = { from: one.from, to: one.to };
  if (page.clock !== "position") setClock("position", one.to);
  seek(one.to);
  page.ruler.element.scrollIntoView({ block: "nearest" });
}

function verdict(lane) {
  const found = page.lens[lane.id];
  if (!found) return "waiting";
  return found.state === "differs" ? found.verdict : found.state;
}

const token = (lane, id) =>
  id === null || id === undefined
    ? "the end"
    : lane.lane.pieces.known.has(id)
      ? `“${lane.lane.pieces.label(id, 30)}”`
      : labelElsewhere(id);
const labelElsewhere = (id) => {
  const other = drawn().find((one) => one.lane.pieces.known.has(id));
  return other ? `“${other.lane.pieces.label(id, 30)}”` : `token ${id}`;
};
const share = (p) => (p === null || p === undefined ? "" : ` (p ${probability(p)})`);

export function drawLens() {
  const rows = drawn().map((lane) => {
    const state = verdict(lane),
      found = page.lens[lane.id] || {};
    const [sign, words] = VERDICTS[state] || VERDICTS.unknown;
    lane.parts.verdict.textContent = lane.method === "plain" && state === "identical" ? "" : `${sign} ${words}`;
    lane.parts.verdict.dataset.verdict = state;
    const baseline = lane.method === "plain" && state === "identical";
    const more = [];
    if (baseline) more.push("the reference");
    else if (state === "identical") more.push(`all ${plural(found.tokens, "token")}`);
    else if (found.text) more.push(found.text);
    else if (found.state === "differs") {
      const at = found.position;
      more.push(
        h(
          "button",
          { type: "button", class: "svp-link", onclick: () => show({ from: at, to: at + 1 }) },
          `token ${(at + 1).toLocaleString("en")}`,
        ),
        `: wrote ${token(lane, found.got)}${share(found.got_prob)}, plain ` +
          `decoding ${token(lane, found.expected)}${share(found.expected_prob)}.`,
        found.gap === null
          ? ""
          : h("span", { title: "Difference of the target's two best logits there" }, ` Top-2 gap ${format(found.gap)}`),
        found.gap === null || !["near tie", "bug"].includes(state)
          ? ""
          : h(
              "span",
              { title: "What rounding may do in this dtype: within it, both tokens are right" },
              `; rounding allows ${format(found.tolerance)} in ${lane.lane.run.model.dtype}`,
            ),
        found.gap === null ? "" : ".",
        found.source === "recorded" ? " By what the run recorded; load its model for a second opinion." : "",
      );
    }
    const row = colored(
      h(
        "div",
        { class: "svc-lens-row", "data-verdict": state },
        mark(lane),
        h("b", {}, name(lane)),
        h("span", { class: "svc-verdict", "data-verdict": state }, `${sign} ${baseline ? "plain decoding" : words}`),
        h("span", { class: "svc-more" }, more),
      ),
      lane.n,
    );
    return [row, found.state === "differs" ? diff(lane, found) : null];
  });
  part("lens-rows").replaceChildren(
    ...rows.flat().filter(Boolean),
    h(
      "p",
      { class: "svc-help" },
      "A near tie: neither token, nor any later one, lies more than rounding below the " +
        "best logit. A bug: a lossless method wrote what the target would not have.",
    ),
  );
}

/** The lane's output against plain decoding's, folded until asked for. */
function diff(lane, found) {
  const holder = h(
    "details",
    { class: "svc-diff sv-compared" },
    h("summary", {}, `${name(lane)} and plain decoding, token by token`),
  );
  holder.addEventListener("toggle", () => {
    if (!holder.open || holder.querySelector(".sv-diff")) return;
    const pieces = Object.create(lane.lane.pieces, {
      known: { value: new Map([...drawn().flatMap((one) => [...one.lane.pieces.known]), ...lane.lane.pieces.known]) },
    });
    const model = {
      trace: { tokens: lane.lane.trace.tokens, plain: { id: found.plain } },
      promptLength: lane.lane.promptLength,
      pieces,
    };
    const view = new DiffView({ root: holder, model });
    holder.append(view.element);
    view.draw();
  });
  return holder;
}

function cell(metric, value) {
  if (value === null || value === undefined) return "–";
  if (metric.unit === "share") return `${(100 * value).toFixed(value && value < 0.1 ? 1 : 0)} %`;
  if (metric.unit === "ms") return format(value);
  return metric.unit === "×" ? `${value.toFixed(2)}×` : format(value);
}

export function drawTable() {
  const lanes = drawn().filter((lane) => page.numbers[lane.id]);
  const value = (lane, metric) => page.numbers[lane.id].metrics[metric.key];
  const rows = page.data.metrics
    .filter((metric) => lanes.some((lane) => value(lane, metric) !== null && value(lane, metric) !== undefined))
    .map((metric) => {
      const sign = BETTER[metric.key] || 0;
      const known = lanes.filter((lane) => lane.method !== "plain" && typeof value(lane, metric) === "number");
      const best = sign && known.length > 1 ? Math.max(...known.map((lane) => sign * value(lane, metric))) : null;
      const head = h(
        "th",
        { scope: "row", tabindex: "0" },
        metric.label,
        metric.unit && metric.unit !== "share" && metric.unit !== "×" ? h("small", {}, ` ${metric.unit}`) : null,
      );
      page.tip.add(head, () => [
        h("b", {}, metric.label),
        h("div", {}, `= ${metric.formula}`),
        h("div", { class: "svc-help" }, metric.help),
      ]);
      return h(
        "tr",
        {},
        head,
        lanes.map((lane) => {
          const wins = best !== null && lane.method !== "plain" && sign * value(lane, metric) === best;
          return h(
            "td",
            { class: `svp-num${wins ? " svc-best" : ""}` },
            cell(metric, value(lane, metric)),
            wins
              ? h(
                  "span",
                  { class: "svc-star", title: "best of the methods", "aria-label": ", best of the methods" },
                  " ★",
                )
              : null,
          );
        }),
      );
    });
  const depth = h("th", { scope: "row", tabindex: "0" }, "Acceptance by depth");
  page.tip.add(depth, () => [
    h("b", {}, "Acceptance by depth"),
    h("div", {}, "= accepted ÷ reached"),
    h(
      "div",
      { class: "svc-help" },
      "A depth is reached by a step where the node above was " +
        "accepted and has a child to try; siblings are one decision.",
    ),
  ]);
  rows.push(
    h(
      "tr",
      {},
      depth,
      lanes.map((lane) => h("td", { class: "svc-depths" }, depths(lane))),
    ),
  );
  part("table").replaceChildren(
    h(
      "table",
      { class: "svp-grid" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col" }, h("span", { class: "svc-unseen" }, "Number")),
          lanes.map((lane) =>
            colored(
              h(
                "th",
                { scope: "col", class: "svp-num" },
                mark(lane),
                " ",
                name(lane),
                settings(lane) && drawn().some((o) => o !== lane && o.method === lane.method)
                  ? h("small", {}, ` ${settings(lane)}`)
                  : null,
              ),
              lane.n,
            ),
          ),
        ),
      ),
      h("tbody", {}, rows),
    ),
  );
}

/** A bar per depth, the first ten, and the numbers for those who listen. */
function depths(lane) {
  const found = page.numbers[lane.id].depths;
  if (!found.length) return h("span", { class: "svc-help" }, "–");
  const said = found
    .slice(0, 10)
    .map(([d, reached, accepted]) => `${d}: ${Math.round((100 * accepted) / reached)} %`)
    .join(", ");
  const bars = h(
    "span",
    { class: "svc-bars", role: "img", tabindex: "0", "aria-label": `Acceptance by depth ${said}` },
    found.slice(0, 10).map(([, reached, accepted]) => {
      const bar = h("i", {}, h("i", {}));
      bar.firstChild.style.height = `${(100 * accepted) / reached}%`;
      return bar;
    }),
  );
  page.tip.add(bars, () => [
    h("b", {}, name(lane)),
    facts(
      found
        .slice(0, 12)
        .map(([d, reached, accepted]) => [
          `depth ${d}`,
          `${Math.round((100 * accepted) / reached)} % (${accepted} of ${reached})`,
        ]),
    ),
  ]);
  return colored(bars, lane.n);
}
