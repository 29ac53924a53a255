// Builds the bundles with esbuild:
//   node js/build.mjs          nbprof/static/dashboard.js, for anywidget and HTML pages, and usual.js, for most outputs,
//                              and site.js, for the page of a site of reports, each gzipped as well
//   node js/build.mjs --lab    lib/lab/index.js, which jupyter-builder makes the lab extension from
//   node js/build.mjs --page   build/dev.js, for js/tests/dev.html
//   node js/build.mjs --watch  the first one, again at each change
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import esbuild from "esbuild";
import { minify } from "terser";

const here = dirname(fileURLToPath(import.meta.url));
const lab = process.argv.includes("--lab");
const page = process.argv.includes("--page");
const watch = process.argv.includes("--watch");
const dev = process.argv.includes("--dev") || watch;

/** Styles of nothing but a tab that most outputs lack. */
const OWN = ["pods.css", "compare.css"];

/** "nbprof:styles": every stylesheet of lib and views as one text, so that a view only adds a file. */
const styles = (usual) => ({
  name: "styles",
  setup(build) {
    build.onResolve({ filter: /^nbprof:styles$/ }, () => ({ path: "styles", namespace: "nbprof" }));
    build.onLoad({ filter: /.*/, namespace: "nbprof" }, async () => {
      const files = [];
      for (const folder of ["lib", "views"]) {
        const found = (await readdir(join(here, folder), { recursive: true })).filter((name) => name.endsWith(".css"));
        const used = found.filter((name) => !(usual && OWN.includes(name)));
        files.push(...used.sort().map((name) => join(here, folder, name)));
      }
      const text = (await Promise.all(files.map((file) => readFile(file, "utf8")))).join("\n");
      const { code } = await esbuild.transform(text, { loader: "css", minify: !dev, target: "es2022" });
      return { contents: code, loader: "text", watchFiles: files };
    });
  },
});

const names = join(here, "../nbprof/tools/names.json");

/** "nbprof:views": what draws each tab, by its id: a view adds a file, and a line to the names. */
const views = (usual) => ({
  name: "views",
  setup(build) {
    build.onResolve({ filter: /^nbprof:views$/ }, () => ({ path: "views", namespace: "nbprof-views" }));
    const known = async () => JSON.parse(await readFile(names, "utf8")).filter(({ rare }) => !(usual && rare));
    build.onLoad({ filter: /names\.json$/ }, async () => ({ contents: JSON.stringify(await known()), loader: "json" }));
    build.onLoad({ filter: /.*/, namespace: "nbprof-views" }, async () => {
      const ids = (await known()).map(({ id }) => id);
      const lines = ids.map((id) => `import { render as ${id} } from "./${id.replaceAll("_", "-")}/view.ts";`);
      const contents = `${lines.join("\n")}\nexport default { ${ids.join(", ")} };`;
      return { contents, loader: "ts", resolveDir: join(here, "views"), watchFiles: [names] };
    });
  },
});

/** What asks Python is never called in an output that is read without nbprof's extension; nor does it draw data of another version. */
const alone = {
  name: "alone",
  setup(build) {
    const contents =
      "export const LiveSource = null, actions = null, complete = (payload) => payload, newer = () => null;";
    build.onLoad({ filter: /views.(trace.live|actions)\.ts$|lib.older\.ts$/ }, () => ({ contents, loader: "ts" }));
  },
};

const docs = join(here, "../docs");
/** Pictures of at most so many bytes go along with the pages. */
const SMALL = 24_000;

/** Pages for those who develop nbprof, not for those who use it. */
const NOT_HELP = ["architecture.md", "benchmarks.md"];

/** The pages of docs/ for the Help of JupyterLab. Pictures that are large, or would be fetched from outside, stay out. */
async function pages() {
  const all = {};
  for (const name of (await readdir(docs)).filter((name) => name.endsWith(".md") && !NOT_HELP.includes(name)).sort()) {
    const text = await readFile(join(docs, name), "utf8");
    const pictures = new Map();
    for (const [, file] of text.matchAll(/!\[[^\]]*\]\(([\w-]+\.png)\)/g)) {
      const bytes = await readFile(join(docs, file)).catch(() => null);
      if (bytes && bytes.length <= SMALL) pictures.set(file, `data:image/png;base64,${bytes.toString("base64")}`);
    }
    all[name.slice(0, -3)] = text.replace(/!\[([^\]]*)\]\(([^)]*)\)/g, (_, words, file) =>
      pictures.has(file) ? `![${words}](${pictures.get(file)})` : "",
    );
  }
  return all;
}

/** "nbprof:docs" is a module of its own beside that of the extension, which is loaded when Help is opened. */
const help = {
  name: "help",
  setup(build) {
    build.onResolve({ filter: /^nbprof:docs$/ }, () => ({ path: "./docs.js", external: true }));
  },
};

const options = {
  bundle: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  legalComments: "none",
  logLevel: "info",
  plugins: [styles(false), views(false), help],
};

const whole = {
  entryPoints: [join(here, "hosts/dashboard.ts")],
  outfile: join(here, "../nbprof/static/dashboard.js"),
  minify: !dev,
};
/** In an output whose tabs most outputs have: nothing else is in its script, which each output of a notebook holds. */
const usual = {
  ...whole,
  entryPoints: [join(here, "hosts/page.ts")],
  outfile: join(here, "../nbprof/static/usual.js"),
  plugins: [styles(true), views(true), alone, help],
};
/** The page of a site of reports, which takes `mount` from dashboard.js. */
const site = {
  ...whole,
  entryPoints: [join(here, "hosts/site.ts")],
  outfile: join(here, "../nbprof/static/site.js"),
};
const target = lab
  ? {
      entryPoints: [join(here, "lab/index.ts")],
      outfile: join(here, "../lib/lab/index.js"),
      external: ["@codemirror/*", "@jupyterlab/*", "@lumino/*"],
    }
  : page
    ? { entryPoints: [join(here, "tests/dev.ts")], outfile: join(here, "../build/dev.js") }
    : whole;

if (watch) {
  const context = await esbuild.context({ ...options, ...target });
  await context.watch();
} else if (lab || page) {
  await esbuild.build({ ...options, ...target });
  if (lab) {
    const text = `export default ${JSON.stringify(await pages())};\n`;
    await writeFile(join(dirname(target.outfile), "docs.js"), text);
  }
} else {
  for (const each of [whole, usual, site]) await bundle(each);
}

async function bundle(one) {
  const built = await esbuild.build({ ...options, ...one, write: false });
  const [{ text }] = built.outputFiles;
  // What esbuild leaves: single uses, repeated conditions, functions called once.
  const code = Buffer.from(
    dev
      ? text
      : (
          await minify(text, {
            module: true,
            ecma: 2020,
            compress: { passes: 3 },
          })
        ).code,
  );
  await mkdir(dirname(one.outfile), { recursive: true });
  const packed = gzipSync(code, { level: 9 });
  await writeFile(one.outfile, code);
  await writeFile(`${one.outfile}.gz`, packed);
  console.log(`${(code.length / 1000).toFixed(1)} kB, ${(packed.length / 1000).toFixed(1)} kB gzipped`);
}
