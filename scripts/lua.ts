// Writes src/drivers/redis/scripts.ts, the Lua files of the Redis driver as a module: nothing is read from disk at run
// time, and every tool that reads TypeScript can read them. `npm run check` sees that it is current.

import { writeFileSync } from "node:fs";
import { LUA_MODULE, renderLuaModule } from "./check/lua.ts";

writeFileSync(LUA_MODULE, renderLuaModule());
