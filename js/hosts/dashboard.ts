/** The bundle nbprof/static/dashboard.js: `mount` for pages, the default export for anywidget. */

export { default } from "./anywidget.js";
export { mount } from "./page.js";
