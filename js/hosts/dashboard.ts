/** The bundle nbprof/static/dashboard.js: `mount` for pages, `Line` for pages that can ask Python, the default export for anywidget. */

export { Line } from "../lib/live.js";
export { default } from "./anywidget.js";
export { mount } from "./page.js";
