/** Stylesheets are bundled as text: "nbprof:styles" is every .css file of js/lib and js/views, in that order. */
declare module "nbprof:styles" {
  const text: string;
  export default text;
}

declare module "nbprof:views" {
  /** What draws each tab of nbprof/tools/names.json: `render` of js/views/<id>/view.ts, where <id> has hyphens. */
  const views: Record<import("./lib/payload.js").TabId, import("./lib/view.js").View>;
  export default views;
}

declare module "nbprof:docs" {
  /** By the name of the page, without ".md". */
  const pages: Record<string, string>;
  export default pages;
}
