// Writes the modules that contain the Lua scripts of the Redis driver and the SQL statements of the SQL drivers. `npm run
// check` sees that they are current.

import { writeFileSync } from "node:fs";
import { renderLuaModule } from "./check/lua.ts";
import { renderSqlModules } from "./check/sql.ts";

for (const { path, text } of [renderLuaModule(), ...renderSqlModules()]) writeFileSync(path, text);
