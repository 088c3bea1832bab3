// What a part must not do: it prints an id to the given stream.

import { randomId } from "../../../src/util/ids.ts";

const destination = process.argv[2];
if (destination === "stdout") console.log(`made ${randomId()}`);
if (destination === "stderr") console.error(`made ${randomId()}`);
console.log("1 passed, 0 failed, 0 skipped");
