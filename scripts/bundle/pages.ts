// The pages of the dashboard, as the files below dist/ui that a gateway serves: code and styles, named by their contents, and
// the page that refers to them. It has no inline script or style: the gateway's policy for its pages allows neither.

import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";
import type { BuiltFile } from "./code.ts";

const SOURCE = "src/dashboard";
const FAVICON = "favicon.svg";
const PAGE = "index.html";

/** Browsers that update themselves, as of the middle of 2024: they have light-dark(), AbortSignal.any() and well-formed strings. */
const BROWSERS = ["es2022", "chrome124", "edge124", "firefox124", "safari17.5"];

export interface BuiltPages {
  readonly files: readonly BuiltFile[];
  /** The paths of all modules whose code or styles are in the files. */
  readonly modules: readonly string[];
}

export async function bundlePages(): Promise<BuiltPages> {
  const { outputFiles, metafile } = await build({
    entryPoints: { app: join(SOURCE, "main.tsx"), "app-styles": join(SOURCE, "styles/app.css") },
    outdir: "ui",
    entryNames: "[name]-[hash]",
    bundle: true,
    write: false,
    metafile: true,
    minify: true,
    format: "esm",
    target: BROWSERS,
    charset: "utf8",
    legalComments: "none",
    tsconfig: join(SOURCE, "tsconfig.json"),
  });
  const assets = outputFiles.map(({ path, text }) => ({ path: `ui/${basename(path).replace("-styles", "")}`, text }));
  const files = [
    ...assets,
    { path: `ui/${FAVICON}`, text: readFileSync(join(SOURCE, FAVICON), "utf8") },
    { path: `ui/${PAGE}`, text: renderPage(assets) },
  ];
  return { files, modules: Object.keys(metafile.inputs) };
}

/** The page with the names of the assets, which say what is in them. */
function renderPage(assets: readonly BuiltFile[]): string {
  return ["js", "css"].reduce(
    (page, type) => {
      const name = assets.map(({ path }) => basename(path)).find((asset) => asset.endsWith(`.${type}`));
      if (name === undefined || !page.includes(`/app.${type}"`))
        throw new Error(`${PAGE} has no place for app.${type}`);
      return page.replace(`/app.${type}"`, `/${name}"`);
    },
    readFileSync(join(SOURCE, PAGE), "utf8"),
  );
}
