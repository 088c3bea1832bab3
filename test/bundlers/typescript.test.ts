// The types of all entries, as a project finds them that does not read "exports" in package.json, and its program, run.

import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { readPackageEntries } from "../../scripts/check/package-entries.ts";
import { resolveInterop } from "../support/interop.ts";
import { createUserProject } from "../support/user-project.ts";

const PROGRAM = `
import { connect, type Lock } from "holdfast";

async function main(): Promise<void> {
  const locks = await connect("memory:");
  await locks.using("k", async (lock: Lock) => console.log("held", lock.keys.join()));
  await locks.close();
}
main();
// an any would have it
// @ts-expect-error
connect.noSuchMember;
`;

test("moduleResolution node10", { timeout: 60_000 }, async () => {
  const project = createUserProject(["node_modules/@types/node", "node_modules/@opentelemetry/api"]);
  onTestFinished(() => project[Symbol.dispose]());
  const names = readPackageEntries().flatMap(({ name }) => (name.startsWith("./") ? [name.slice(2)] : []));
  const imports = names.map((name, index) => `import * as entry${index} from "holdfast/${name}";`);
  const uses = names.map((_, index) => `// @ts-expect-error\nentry${index}.noSuchMember;`);
  const compilerOptions = {
    module: "commonjs",
    moduleResolution: "node10",
    target: "es2022",
    strict: true,
    types: ["node"],
  };
  project.write({
    "tsconfig.json": JSON.stringify({ compilerOptions: { ...compilerOptions, lib: ["es2023", "esnext.disposable"] } }),
    "main.ts": PROGRAM,
    "entries.ts": [...imports, ...uses].join("\n"),
  });
  const compiler = join(resolveInterop("typescript/package.json", "jest"), "../bin/tsc");
  expect(await project.run(compiler, "-p", ".")).toBe("");
  expect(await project.run("main.js")).toBe("held k\n");
  expect(await project.run("entries.js")).toBe("");
});
