// After tsc, in `npm run compile`: Node loads nothing but JavaScript, so each text gets a module beside the code, and the code imports
// that. Argument: the folder that tsc has written; default: build.

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { listFiles } from "./list-files.ts";
import { isTextFile, renderTextModule } from "./text-modules.ts";

const TEXT_IMPORT = /^(import .* from "\.[^"]*\.(?:lua|sql|sh|c))(";)$/gm;

const folder = process.argv[2] ?? "build";

for (const path of listFiles("src").filter(isTextFile)) {
  const file = join(folder, `${path}.js`);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, renderTextModule(path));
}
for (const path of listFiles(folder).filter((file) => file.endsWith(".js"))) {
  const code = readFileSync(path, "utf8");
  const linked = code.replace(TEXT_IMPORT, "$1.js$2");
  if (linked !== code) writeFileSync(path, linked);
}
