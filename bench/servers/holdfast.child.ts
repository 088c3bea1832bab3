// Our lock server, with a state folder as `holdfast serve` has.

import { serve } from "../../src/server/server.ts";
import type { ListenRequest } from "../harness/address.ts";
import { serveCalls } from "../harness/child-rpc.ts";
import { HIGH_LIMITS } from "./high-limits.ts";

serveCalls({
  listen: async ({ path, tcp }: ListenRequest) => {
    const listen = tcp ? "holdfast://127.0.0.1:0" : `holdfast+unix:${path}`;
    const { addresses } = await serve({ listen, state: `${path}.state`, limits: HIGH_LIMITS });
    return tcp ? `tcp:${addresses[0]?.split(":").at(-1)}` : path;
  },
});
