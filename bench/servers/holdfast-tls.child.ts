// Our lock server on TLS. Its address is the url for clients.

import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { serve } from "../../src/server/serve.ts";
import { authority, writeCertificate } from "../../test/support/certificates.ts";
import type { Listen } from "../harness/address.ts";
import { answerCalls } from "../harness/calls.ts";

answerCalls({
  listen: async ({ path }: Listen) => {
    const issuer = authority();
    mkdirSync(dirname(path), { recursive: true });
    const { cert, key, ca } = writeCertificate(dirname(path), issuer.issue(["127.0.0.1"]), issuer);
    const { addresses } = await serve({ listen: "tls://127.0.0.1:0", state: `${path}.state`, tls: { cert, key } });
    return `${addresses[0]?.replace("tls:", "holdfasts:")}?ca=${encodeURIComponent(ca)}`;
  },
});
