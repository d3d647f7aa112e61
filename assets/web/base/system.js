/* A page without a switch is light or dark as the system is. */

export function followSystem() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const paint = () => {
    for (const one of [document.documentElement, document.body]) one.classList.toggle("dark", dark.matches);
  };
  paint();
  dark.addEventListener("change", paint);
}
