/* Page "Lessons": guided tours over recorded runs. */
(function () {
  "use strict";

  window.SpecVizApp.lessons = ({ element }) => {
    element.querySelector(".svp-lessons").textContent = "";
  };
})();
