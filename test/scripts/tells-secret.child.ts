// What a part must not do: it prints an id, where it is told to.

import { newId } from "../../src/ids.ts";

const where = process.argv[2];
if (where === "stdout") console.log(`made ${newId()}`);
if (where === "stderr") console.error(`made ${newId()}`);
console.log("1 passed, 0 failed, 0 skipped");
