/** A name of a script that nothing defines is an error of Redis, but only when a call gets there. */

import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { isTextFile, readText } from "../../../../scripts/text-modules.ts";

const SCRIPTS = "src/drivers/redis/lua";

test("every constant of a script has a value, and each is used", () => {
  for (const name of readdirSync(SCRIPTS).filter(isTextFile)) {
    const text = readText(`${SCRIPTS}/${name}`).replaceAll(/'(?:[^'\\]|\\.)*'/g, "''");
    const variables = [...text.matchAll(/^local (.*) = /gm)].flatMap(([, names]) => (names as string).split(", "));
    const left = new Set([...text.matchAll(/(?<![.\w])[A-Z][A-Z\d_]+\b/g)].map(([word]) => word));
    expect([...left].filter((word) => ![...variables, "KEYS", "ARGV"].includes(word))).toEqual([]);
  }
  const texts = [SCRIPTS, `${SCRIPTS}/lib`].flatMap((folder) =>
    readdirSync(folder)
      .filter(isTextFile)
      .map((name) => readFileSync(`${folder}/${name}`, "utf8").replace(/^--\[\[.*?\]\]\n/s, "")),
  );
  const all = texts.join("\n");
  const constants = [...all.matchAll(/^local (\w+) <const>/gm)].map(([, name]) => name as string);
  expect(constants.length).toBeGreaterThan(40);
  expect(constants.filter((name) => all.split(new RegExp(`\\b${name}\\b`)).length < 3)).toEqual([]);
});
