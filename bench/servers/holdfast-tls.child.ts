// Our lock server on TLS. Its address is the url for clients.

import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { serve } from "../../src/server/server.ts";
import { createAuthority, writeCertificate } from "../../test/support/certificates.ts";
import type { ListenRequest } from "../harness/address.ts";
import { serveCalls } from "../harness/child-rpc.ts";

serveCalls({
  listen: async ({ path }: ListenRequest) => {
    const issuer = createAuthority();
    mkdirSync(dirname(path), { recursive: true });
    const { cert, key, ca } = writeCertificate(dirname(path), issuer.issue(["127.0.0.1"]), issuer);
    const { addresses } = await serve({
      listen: "holdfasts://127.0.0.1:0",
      state: `${path}.state`,
      tls: { cert, key },
    });
    return `${addresses[0]}?ca=${encodeURIComponent(ca)}`;
  },
});
