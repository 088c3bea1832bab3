// Our lock server, with a state folder as `holdfast serve` has.

import { serve } from "../../src/server/serve.ts";
import type { Listen } from "../harness/address.ts";
import { answerCalls } from "../harness/calls.ts";
import { ROOMY } from "./roomy.ts";

answerCalls({
  listen: async ({ path, tcp }: Listen) => {
    const listen = tcp ? "tcp://127.0.0.1:0" : `unix:${path}`;
    const { addresses } = await serve({ listen, state: `${path}.state`, limits: ROOMY });
    return tcp ? `tcp:${addresses[0]?.split(":").at(-1)}` : path;
  },
});
