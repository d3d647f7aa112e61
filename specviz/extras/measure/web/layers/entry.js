/* The tab "Layers" of Inspect, once there is an inspector. */

import { on } from "specviz/base/bus.js";
import { LayersTab } from "specviz/layers/tab.js";
import { app } from "specviz/shell/state.js";

if (app.inspector) new LayersTab(app.inspector);
else on("inspector", (inspector) => new LayersTab(inspector));
