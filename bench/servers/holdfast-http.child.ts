// Our lock server with a gateway in its process. The address for HTTP is in a file beside its socket.

import { writeFileSync } from "node:fs";
import { serve } from "../../src/server/server.ts";
import type { ListenRequest } from "../harness/address.ts";
import { serveCalls } from "../harness/child-rpc.ts";

serveCalls({
  listen: async ({ path }: ListenRequest) => {
    const { httpAddress } = await serve({
      listen: `holdfast+unix:${path}`,
      state: `${path}.state`,
      http: "127.0.0.1:0",
    });
    writeFileSync(`${path}.http`, String(httpAddress));
    return path;
  },
});
