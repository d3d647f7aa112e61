/* Page "Attribution": what an answer was copied from. */
(function () {
  "use strict";

  window.SpecVizApp.attribution = ({ element }) => {
    element.querySelector(".svp-attribution").textContent = "";
  };
})();
