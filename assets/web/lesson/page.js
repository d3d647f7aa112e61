/* Page "Lessons" in the app: lessons and their runs come from the server. */

import { on } from "specviz/base/bus.js";
import { h, place } from "specviz/base/dom.js";
import { getJson } from "specviz/base/json.js";
import { again, load, page, turn } from "specviz/lesson/lessons.js";
import { setAddress } from "specviz/shell/address.js";
import { onInspect } from "specviz/shell/open.js";
import { app } from "specviz/shell/state.js";
import { goTo } from "specviz/shell/tabs.js";

/** @type {LessonHost} */
const server = {
  lessons: () => getJson("api/lessons"),
  lesson: (id) => getJson(`api/lessons/${encodeURIComponent(id)}`),
  run: (name) => getJson(`api/lessons/runs/${encodeURIComponent(name)}`),
  inspect: (run, step) => onInspect(run, { step }),
  moved: setAddress,
  address: { tab: "lessons" },
  note: () =>
    h(
      "p.svn-write.ui-soft",
      "A lesson is a plain text file: put yours into the folder that ",
      h("code", "specviz lessons"),
      " names, and it appears here. ",
      h("code", "specviz lessons check FILE"),
      " says what is wrong with one; ",
      h("code", "assets/lessons/README.md"),
      " tells how to write it.",
    ),
};

/** Opens a lesson from another page, where the learner was. @param {string} id */
export function learn(id) {
  setAddress({ lesson: id, at: null });
  goTo("lessons");
  if (page.asked) again(id);
}

on("address", (asked) => {
  if (page.asked && asked.get("tab") === "lessons") turn(asked.get("lesson"), Number(asked.get("at")) - 1);
});

/** @param {Part} part */
export function mount({ element }) {
  app.pages.lesson = page;
  page.host = server;
  page.box = place(element, "lessons");
  page.box.replaceChildren(page.place);
  // nothing is asked for before the page is looked at
  const seen = new ResizeObserver(() => {
    if (!page.box.offsetWidth) return;
    if (!page.asked) {
      page.asked = true;
      load();
    } else if (page.player) page.player.inspector.resized();
  });
  seen.observe(page.box);
}
