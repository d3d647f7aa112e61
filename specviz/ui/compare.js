/* Page "Compare": methods side by side on one prompt. */
(function () {
  "use strict";

  window.SpecVizApp.compare = ({ element }) => {
    element.querySelector(".svp-compare").textContent = "";
  };
})();
