/* The entry of an attribution's own page. */

import { Attribution } from "specviz/attribution/view.js";
import { expose } from "specviz/base/handle.js";
import { followSystem } from "specviz/base/system.js";

followSystem();
const documents = JSON.parse(document.getElementById("attribution-data").textContent);
const attribution = new Attribution(document.getElementById("attribution"));
attribution.load(documents.signals, documents);
expose({ attribution });
