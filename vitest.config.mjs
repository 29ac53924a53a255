import { defineConfig } from "vitest/config";

export default defineConfig({
  // The files share one module graph: loading it for each would take three quarters of the time.
  test: { include: ["js/tests/**/*.test.ts"], environment: "node", isolate: false },
});
