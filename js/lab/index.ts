/** The JupyterLab plugins. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from "@jupyterlab/application";
import { IRenderMimeRegistry } from "@jupyterlab/rendermime";
import { rendererFactory } from "../hosts/mime.js";
import { stripFactory } from "../hosts/strip.js";
import { keepWheel } from "../lib/wheel.js";
import { capture } from "./capture.js";
import { cells } from "./cells.js";
import { compare } from "./compare.js";
import { documents } from "./documents.js";
import { gutters } from "./gutter.js";
import { help } from "./help.js";
import { launcher } from "./launcher.js";
import { runs } from "./runs.js";
import { settingsPlugin } from "./settings.js";

// Here and not in a plugin: before JupyterLab's own plugins are activated.
keepWheel(window);

const plugin: JupyterFrontEndPlugin<void> = {
  id: "nbprof:plugin",
  description: "Draws the output of a profiled cell.",
  autoStart: true,
  requires: [IRenderMimeRegistry],
  activate: (_app: JupyterFrontEnd, registry: IRenderMimeRegistry) => {
    // Before the widget view (-10) and text/html (50), which the same output also holds.
    registry.addFactory(rendererFactory, -20);
    registry.addFactory(stripFactory, -20);
  },
};

export default [plugin, settingsPlugin, cells, launcher, documents, runs, compare, help, capture, gutters];
