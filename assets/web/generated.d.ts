/** The module that ``specviz/web.py`` makes of ``specviz/terms.py``. */
declare module "specviz/generated/terms.js" {
  export const terms: Record<string, { label: string; formula: string; code: string; help: string }>;
  export const drafted: Record<string, string>;
  export const verified: Record<string, string>;
}
