/* The drafter doctor in the Lab's list. */

import { doctorView } from "specviz/doctor/view.js";
import { app } from "specviz/shell/state.js";

app.tools.push({
  name: "doctor", title: "Drafter doctor", order: 10, view: doctorView,
  about: "Why a head or draft model has little accepted",
});
