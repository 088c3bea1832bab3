// Floor A: answers every frame at once, all frames of a line in one line.

import { serveBaseline } from "./baseline.ts";

serveBaseline((_kind, number, _key, _id, reply) => reply(number));
