/* The entry of an attribution's own page. */

import { Attribution } from "specviz/attribution/view.js";
import { must } from "specviz/base/dom.js";
import { expose } from "specviz/base/handle.js";
import { markOverrides } from "specviz/base/overrides.js";
import { followSystem } from "specviz/base/system.js";

followSystem();
markOverrides();
/** @param {string} id */
const element = (id) => must(document.getElementById(id), id);
const documents = JSON.parse(element("attribution-data").textContent ?? "");
const attribution = new Attribution(element("attribution"));
attribution.load(documents.signals, documents);
expose({ attribution });
