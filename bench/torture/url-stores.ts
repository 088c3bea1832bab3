/** Stores that `holdfast torture` does not start: the programs of the tests stand in for them, and are tortured by their url. */

import { startDocumentServer, urlOf } from "../../test/support/stores/document-servers.ts";
import { AWS_ENVIRONMENT } from "../../test/support/stores/document-stores.ts";
import { installS3 } from "../../test/support/stores/s3-server.ts";
import type { UrlStoreName } from "./subjects.ts";

interface UrlStore {
  readonly url: string;
  readonly environment: Readonly<Record<string, string>>;
  close(): Promise<void>;
}

/** Its data end with it. */
export async function startUrlStore(name: UrlStoreName): Promise<UrlStore> {
  if (name === "s3") installS3();
  const server = await startDocumentServer(name);
  return {
    url: urlOf(await server.create("locks")),
    environment: AWS_ENVIRONMENT,
    close: () => server.dispose(),
  };
}
