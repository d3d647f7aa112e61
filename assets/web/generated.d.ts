/** The module that ``specviz/views/web.py`` makes of ``specviz/views/terms.py``. */
declare module "specviz/generated/terms.js" {
  /** Key of a number → what it means. */
  export const terms: Record<string, Term>;
  /** Method → the code that drafts. */
  export const drafted: Record<string, string>;
  /** Method → the code that verifies. */
  export const verified: Record<string, string>;
}
