// TLS: which parameters of a url verify the server, with both libraries; and the command line.

import { describe, expect, test } from "vitest";
import { connect } from "../../../src/client/connect.ts";
import { loadMysqlClient } from "../../../src/drivers/sql/clients/load.ts";
import { explainError } from "../../../src/drivers/sql/mysql/errors.ts";
import { cliSandbox } from "../../support/cli-sandbox.ts";
import { expectSilentLoginsGivenUp } from "../../support/stores/sql-client-tests.ts";
import type { DatabaseServer } from "../../support/stores/sql-database.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";
import { createTlsFiles } from "../../support/stores/tls-files.ts";
import { openMariadbUrl } from "../../support/stores/url-clients.ts";

const files = createTlsFiles();
const sandbox = cliSandbox();
const UNKNOWN_ISSUER = /^mysql: the certificate of the server is signed by an unknown issuer: .*ssl-ca in the url/;
const OTHER_NAME = /^mysql: the certificate of the server is for another name/;

const urlOf = (server: DatabaseServer, query: string): string =>
  `${server.url.replace("127.0.0.1", "localhost")}?${query}&silenceWarnings=durability`;

/** By mariadb: the version of TLS, or the explained error. */
async function connectMariadb({ url }: DatabaseServer, host: string, ca: string): Promise<string> {
  const client = openMariadbUrl(`${url.replace("127.0.0.1", host)}?ssl-ca=${ca}`);
  try {
    const connection = await client.connect();
    const { rows } = await connection.query("show status like 'Ssl_version'");
    connection.release();
    return String(rows[0]?.Value);
  } catch (error) {
    return (explainError(error) as Error).message;
  } finally {
    await client.close();
  }
}

describe("a server with a certificate for localhost and 127.0.0.1", () => {
  withMariaDb(
    (server) => {
      test("a url with its issuer is accepted by mysql2, which encrypts", async () => {
        const locks = await connect(urlOf(server(), `ssl-ca=${files.server.ca}`));
        const [used] = await server().query("show global status like 'Ssl_finished_accepts'");
        expect(Number(used?.Value)).toBeGreaterThan(0);
        await locks.close();
      });

      test.each(["ssl=true", `ssl-ca=${files.wrongCa}`])(
        "%s refuses a server of an unknown issuer, before the login",
        async (query) => {
          await expect(connect(urlOf(server(), query))).rejects.toMatchObject({
            code: "LOCK_STORE_REFUSED",
            message: expect.stringMatching(UNKNOWN_ISSUER),
          });
        },
      );

      test("mariadb verifies the issuer, also of a server that is named by its address", async () => {
        for (const host of ["localhost", "127.0.0.1"]) {
          expect(await connectMariadb(server(), host, files.server.ca)).toMatch(/^TLSv1\.[23]$/);
          expect(await connectMariadb(server(), host, files.wrongCa)).toMatch(UNKNOWN_ISSUER);
        }
      });

      test("a server that is silent within the handshake, or after it, is given up", async () => {
        for (const open of [loadMysqlClient, openMariadbUrl]) {
          await expectSilentLoginsGivenUp(server().port, [0, 1, 2], (port) => {
            const url = server().url.replace(`127.0.0.1:${server().port}`, `localhost:${port}`);
            return open(`${url}?ssl-ca=${files.server.ca}`, { connectTimeoutMs: 300 });
          });
        }
      });

      test("the command line: runs with the right issuer; with another one nothing runs", async () => {
        const run = (ca: string) =>
          sandbox.run(["run", "k", "--", "echo", "ran"], { env: { HOLDFAST_URL: urlOf(server(), `ssl-ca=${ca}`) } });
        expect(await run(files.server.ca)).toMatchObject({ code: 0, out: "ran\n", err: "" });
        expect(await run(files.wrongCa)).toMatchObject({
          code: 77,
          out: "",
          err: expect.stringMatching(
            /^holdfast: mysql: the certificate of the server is signed .*; nothing was run\n$/,
          ),
        });
      });
    },
    { settings: { "ssl-cert": files.server.cert, "ssl-key": files.server.key } },
  );
});

describe("a server with a certificate for another name", () => {
  withMariaDb(
    (server) => {
      test("is refused by both libraries", async () => {
        await expect(connect(urlOf(server(), `ssl-ca=${files.otherServer.ca}`))).rejects.toThrow(OTHER_NAME);
        for (const host of ["localhost", "127.0.0.1"]) {
          expect(await connectMariadb(server(), host, files.otherServer.ca)).toMatch(OTHER_NAME);
        }
      });
    },
    { settings: { "ssl-cert": files.otherServer.cert, "ssl-key": files.otherServer.key } },
  );
});

describe("a server without TLS", () => {
  withMariaDb((server) => {
    test("a url that demands TLS is refused at once", async () => {
      await expect(connect(urlOf(server(), "ssl=true"))).rejects.toThrow(/^mysql: the server does not support TLS: /);
      expect(await connectMariadb(server(), "localhost", files.server.ca)).toMatch(/does not support TLS/);
    });
  });
});
