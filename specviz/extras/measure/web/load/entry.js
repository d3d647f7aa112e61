/* Draft lengths among the views of runs' acceptance. */

import { drawLengths } from "specviz/load/lengths.js";
import { app } from "specviz/shell/state.js";

app.runViews.push({ name: "lengths", title: "Draft lengths", order: 30, draw: drawLengths });
