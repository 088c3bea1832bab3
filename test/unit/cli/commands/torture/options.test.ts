import { createRequire } from "node:module";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { parseTortureFlags } from "../../../../../src/cli/commands/torture/options.ts";

function findRivals(...rival: readonly string[]): readonly string[] {
  return parseTortureFlags({ start: "server", time: "5s", rival }).rivals;
}

describe("--rival", () => {
  test("is a file, relative to the current directory", () => {
    expect(findRivals("package.json", resolve("knip.jsonc"))).toEqual([resolve("package.json"), resolve("knip.jsonc")]);
  });

  test("else it is a package of the project in the current directory", () => {
    expect(findRivals("vitest")).toEqual([createRequire(resolve("package.json")).resolve("vitest")]);
  });

  test("is refused if it is neither", () => {
    expect(() => findRivals("no-such-adapter")).toThrow("no-such-adapter is neither a file nor a package");
  });
});
