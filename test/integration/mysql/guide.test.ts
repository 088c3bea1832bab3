// The first block of the page about MariaDB and MySQL runs as its reader would run it.

import { expect, test } from "vitest";
import { runSnippet } from "../../support/page-snippet.ts";
import { withMariaDb } from "../../support/stores/sql-fixture.ts";

const DOCUMENTED_URL = "mariadb://app:secret@db.example.org/shop";

withMariaDb((server) => {
  test("the block of the page runs: mysql", async () => {
    const database = await server().freshDatabase();
    const url = `${database.url.replace("mysql:", "mariadb:")}?silenceWarnings=durability`;
    const result = await runSnippet({ page: "mysql", replaced: { [DOCUMENTED_URL]: url } });
    expect(result).toEqual({ code: 0, out: "", err: "" });
    expect((await database.query("show tables")).length).toBeGreaterThan(0);
    await database.drop();
  });
});
