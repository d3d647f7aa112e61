/* The lessons on a static site. */

import { h } from "specviz/base/dom.js";
import { file } from "specviz/site/files.js";
import { expose } from "specviz/base/handle.js";
import { put } from "specviz/base/storage.js";
import { followSystem } from "specviz/base/system.js";
import { load, page } from "specviz/lesson/lessons.js";
import { around, main, site, to } from "specviz/site/site.js";

/** @type {LessonHost} */
const host = {
  lessons: async () => ({ lessons: site.lessons }),
  lesson: (id) => file(`lessons/${id}.js`),
  run: (key) => file(`traces/${key}.js`),
  inspect: (run, step) => location.assign(`${to("run", { run })}#step=${step}`),
  moved: (changes) => {
    try {
      history.replaceState(null, "", put(new URL(location.href), changes));
    } catch {
      // a page from disk in a frame has no address of its own
    }
  },
  address: {},
  note: () => h("p.svn-write.ui-soft", "Every run of a lesson opens in the inspector, by the button beside its step."),
};

followSystem();
around(undefined, "lessons");
page.host = host;
page.box = main;
main.replaceChildren(page.place);
page.asked = true;
load();
new ResizeObserver(() => page.player?.inspector.resized()).observe(main);
expose({ lessons: page });
