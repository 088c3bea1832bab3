// Floor A: answers every frame at once, all frames of a line in one line.

import { serveFloor } from "./floor.ts";

serveFloor((_kind, number, _key, _id, reply) => reply(number));
