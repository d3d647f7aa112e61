/* The tab "Places" of Inspect, once there is an inspector. */

import { on } from "specviz/base/bus.js";
import { PlacesTab } from "specviz/places/tab.js";
import { app } from "specviz/shell/state.js";

if (app.inspector) new PlacesTab(app.inspector);
else on("inspector", (inspector) => new PlacesTab(inspector));
