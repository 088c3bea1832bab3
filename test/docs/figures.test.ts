// Figures in prose that are constants of the code: a page must not go on to promise what has changed.

import { readFileSync } from "node:fs";
import { expect, test } from "vitest";

/** A sentence of a page, with {} for each figure, and for each of them the file below src/ and the constant in it. */
type Row = readonly [sentence: string, ...constants: readonly string[]];

const PAGES: Readonly<Record<string, readonly Row[]>> = {
  "docs/guide/server.md": [
    ["or one claim for each {} of heap", "server/limits.ts HEAP_BYTES_PER_CLAIM"],
    ["and so skips the {} of `--state none`", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["On a full disk, no new lease over {} is granted.", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["the server grants no new locks for {}.", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["the longest lease requested before, at most {}", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    [
      "This recovery takes at most the longest lease requested before: {} by default, never more than {}.",
      "server/local/startup-plan.ts DEFAULT_LEASE_MS",
      "server/storage/write-ahead.ts MAX_UNJOURNALED_MS",
    ],
    ["of the address that has the most | {} |", "server/connection/connection-limiter.ts MAX_UNAUTHENTICATED"],
    ["| time that a connection has to send hello | {} |", "server/service.ts HELLO_TIMEOUT_MS"],
    [
      "| the longest first line, and the levels of arrays and objects in it | {}, {} levels |",
      "protocol/handshake.ts MAX_HELLO_BYTES",
      "server/connection/connection.ts MAX_HELLO_DEPTH",
    ],
    [
      "| frames in one line; ids or claims in one frame; targets in one `revoke` | {}; {}; {} |",
      "protocol/handshake.ts framesPerLine",
      "protocol/handshake.ts itemsPerFrame",
      "server/connection/decode-request.ts MAX_REVOCATIONS",
    ],
    ["| all waiting claims | {} |", "server/local/claim-quotas.ts MAX_WAITERS"],
    ["| claims in one page of a list | {} |", "protocol/handshake.ts pageSize"],
    [
      "| `list` frames in one line, and waiting `history` frames of one connection | {} |",
      "server/connection/request-handler.ts MAX_LISTS",
    ],
    [
      "waiting `history` frames of one connection | {} |",
      "server/connection/admin-handler.ts MAX_HISTORIES_PER_CONNECTION",
    ],
    [
      "| subscriptions to events: of one connection, of one account, in all | {}, {}, {} |",
      "server/connection/admin-handler.ts MAX_WATCHES",
      "server/events/event-log.ts MAX_SUBSCRIBERS_PER_ACCOUNT",
      "server/events/event-log.ts MAX_SUBSCRIBERS",
    ],
    ["Beyond this the server ends the connection | {} |", "server/connection/connection.ts MAX_UNREAD_BYTES"],
    ["may read nothing while more than {} waits for it", "server/net/socket-transport.ts MAX_BUFFERED_BYTES"],
    ["because a stopped process still exists | {} |", "server/net/socket-transport.ts UNREAD_TIMEOUT_MS"],
    ["| keys of one claim | {} |", "spi/driver.ts MAX_LOCKS"],
    ["| the longest key | {} |", "util/keys.ts MAX_KEY_BYTES"],
    ["| the longest label; longer labels are cut | {} |", "util/keys.ts MAX_LABEL_BYTES"],
    ["| the longest range of fencing tokens of one claim | {} |", "protocol/handshake.ts tokens"],
    [
      "| how far a token floor may be ahead of the server's clock | {} |",
      "lock-table/token-rule.ts MAX_FLOOR_LEAD_MICROS",
    ],
    ["from which on the server stops reading from it | {} |", "server/net/socket-transport.ts MAX_BUFFERED_BYTES"],
    ["whatever its client still sends | {} |", "server/net/socket-transport.ts LINGER_MS"],
    ["the rest waits for its next turn | {} |", "server/time-slicer.ts SLICE_MS"],
    ['may be silent before its claims with ttl `"session"` end | {} |', "server/server.ts SESSION_MS"],
    [
      "| time that the queue entries of a disconnected client are kept | {}; {} after a restart |",
      "server/session/session-registry.ts WAITER_GRACE_MS",
      "server/session/session-registry.ts RETURN_TIMEOUT_MS",
    ],
    [
      "| the longest lease up to {} that may be held, so at most {} |",
      "server/storage/write-ahead.ts MAX_UNJOURNALED_MS",
      "server/storage/write-ahead.ts MAX_UNJOURNALED_MS",
    ],
    ["| waiting lists and waiting histories of all clients | {} each |", "server/local/claim-lister.ts MAX_JOBS"],
    ["waiting histories of all clients | {} each |", "server/connection/admin-handler.ts MAX_HISTORIES"],
    [
      "| events that are kept | {} usual events, {} others |",
      "server/events/event-log.ts capacity",
      "server/events/event-log.ts capacity",
    ],
    ["| HTTP: a TLS handshake | {} |", "server/service.ts HELLO_TIMEOUT_MS"],
    [
      "| HTTP: head of a request | {}, within {} |",
      "gateway/http/http-server.ts maxHeaderSize",
      "gateway/http/http-server.ts HEADERS_TIMEOUT_MS",
    ],
    [
      "{} levels of arrays and objects; the complete request within {} |",
      "gateway/http/context.ts MAX_BODY_DEPTH",
      "gateway/http/http-server.ts REQUEST_TIMEOUT_MS",
    ],
    [
      "| HTTP: a connection without data in either direction | {}; {} between requests |",
      "gateway/http/http-server.ts IDLE_TIMEOUT_MS",
      "gateway/http/http-server.ts HEADERS_TIMEOUT_MS",
    ],
    ["| HTTP: requests on one connection | {} |", "gateway/http/http-server.ts MAX_REQUESTS_PER_CONNECTION"],
    [
      "| HTTP: time that a request waits for a lock | {}; its place is kept {} longer |",
      "gateway/http/schemas.ts MAX_WAIT_MS",
      "gateway/place.ts WAIT_GRACE_MS",
    ],
    [
      "| HTTP: one stream of events. Its reader then reconnects and continues where it was | {} |",
      "gateway/http/sent-events.ts MAX_STREAM_MS",
    ],
    ["| duration of a stop | {} |", "cli/commands/serve/serve.ts DRAIN_TIMEOUT_MS"],
    ["no locks are granted for {} after each start", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["| `journal` | leases over {}, and detached leases |", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["Its waiters are skipped at once and dropped after {}.", "server/session/session-registry.ts WAITER_GRACE_MS"],
  ],
  "docs/reference/protocol.md": [
    ["A key has 1 to {} of", "util/keys.ts MAX_KEY_BYTES"],
    ["(the first line {})", "protocol/handshake.ts MAX_HELLO_BYTES"],
    ["may be longer than that: support {}.", "drivers/server/connection.ts MAX_LINE_BYTES"],
    [
      "is nested to more than {} levels, or does not arrive within {}.",
      "server/connection/connection.ts MAX_HELLO_DEPTH",
      "server/service.ts HELLO_TIMEOUT_MS",
    ],
    ["while it is away, and the server drops them after {}.", "server/session/session-registry.ts WAITER_GRACE_MS"],
    [
      "| connections; from one address; without a hello | {}; {}; {} |",
      "server/limits.ts connections",
      "server/limits.ts connectionsPerAddress",
      "server/connection/connection-limiter.ts MAX_UNAUTHENTICATED",
    ],
    ["| time for the hello | {} |", "server/service.ts HELLO_TIMEOUT_MS"],
    ["| wrong credentials from one address in a minute | {} |", "server/limits.ts failuresPerMinute"],
    [
      "| first line; later lines | {}; {} |",
      "protocol/handshake.ts MAX_HELLO_BYTES",
      "protocol/handshake.ts lineBytes",
    ],
    ["| levels of the first line | {} |", "server/connection/connection.ts MAX_HELLO_DEPTH"],
    ["| frames in a line | {} |", "protocol/handshake.ts framesPerLine"],
    [
      "| unsent data for a client that does not read | {} | the connection ends with `SLOW`; from {} on",
      "server/connection/connection.ts MAX_UNREAD_BYTES",
      "server/net/socket-transport.ts MAX_BUFFERED_BYTES",
    ],
    [
      "from which the server therefore reads nothing | {}, not on a Unix socket",
      "server/net/socket-transport.ts UNREAD_TIMEOUT_MS",
    ],
    [
      "| ids or claims in a frame; targets in a `revoke` | {}; {} |",
      "protocol/handshake.ts itemsPerFrame",
      "server/connection/decode-request.ts MAX_REVOCATIONS",
    ],
    ["| `list` frames in a line, and without an answer | {} |", "server/connection/request-handler.ts MAX_LISTS"],
    ["| lease | {} |", "server/limits.ts ttlMs"],
    ["but not for a session) | {}; {} or less", "server/limits.ts claimsPerAccount", "server/limits.ts claims"],
    [
      "| places in the queue of a key; waiting claims in all | {}; {} |",
      "server/limits.ts waitersPerKey",
      "server/local/claim-quotas.ts MAX_WAITERS",
    ],
    [
      "| watches of a connection; of an account; in all | {}; {}; {} |",
      "server/connection/admin-handler.ts MAX_WATCHES",
      "server/events/event-log.ts MAX_SUBSCRIBERS_PER_ACCOUNT",
      "server/events/event-log.ts MAX_SUBSCRIBERS",
    ],
    [
      "Fixed by this version: {} locks of a claim, {} of a key, {} of a label",
      "spi/driver.ts MAX_LOCKS",
      "util/keys.ts MAX_KEY_BYTES",
      "util/keys.ts MAX_LABEL_BYTES",
    ],
    ["every server accepts {}.", "protocol/handshake.ts MIN_TOKEN_LIMIT"],
    ["not supported by this server: a ttl over {} without a state", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
  ],
  "docs/reference/http.md": [
    [
      "**Acquire.** `wait` is how long the request may wait for the lock, at most {}:",
      "gateway/http/schemas.ts MAX_WAIT_MS",
    ],
    ["in UTF-8, at most {}.", "protocol/handshake.ts lineBytes"],
    ["- **ttl**: the length of the lease, {} by default.", "gateway/http/schemas.ts DEFAULT_TTL_MS"],
    ["the longest `ttl` that the server allows ({} by default)", "server/limits.ts ttlMs"],
    ["- **wait**: how long this request waits, at most and by default {}.", "gateway/http/schemas.ts MAX_WAIT_MS"],
    ["each time within `graceMs` ({}) of the previous answer", "gateway/place.ts WAIT_GRACE_MS"],
    [
      "The head of a request has at most {}. The head must arrive within {}, the complete request within {}.",
      "gateway/http/http-server.ts maxHeaderSize",
      "gateway/http/http-server.ts HEADERS_TIMEOUT_MS",
      "gateway/http/http-server.ts REQUEST_TIMEOUT_MS",
    ],
    ["A connection ends after {} requests.", "gateway/http/http-server.ts MAX_REQUESTS_PER_CONNECTION"],
  ],
  "docs/reference/api/holdfast.md": [
    ["| `ttl` | the client's, else {} | length of the lease", "client/options.ts ttl"],
    ["like a label, cut at {} |", "util/keys.ts MAX_LABEL_BYTES"],
    ["a host, or an address. Cut at {};", "util/keys.ts MAX_LABEL_BYTES"],
    ["| `connectTimeout` | {} |", "client/driver-url.ts timeout"],
    [
      "| `ttl` | {} | default of each acquire's `ttl`; a duration of at least {},",
      "client/options.ts ttl",
      "util/duration.ts MIN_TTL_MS",
    ],
    ["The Holdfast server takes at most {} keys in one request", "spi/driver.ts MAX_LOCKS"],
    ["then closes the driver. Waits at most {} for the store.", "client/client.ts CLOSE_TIMEOUT_MS"],
    ["A key has 1 to {} of UTF-8", "util/keys.ts MAX_KEY_BYTES"],
    ["A release that the store does not answer does so for {}.", "client/release-queue.ts KEEP_ALIVE_MS"],
    ["runs `close()` for at most {}, then", "client/close-on-signal.ts CLOSE_TIMEOUT_MS"],
    ["Control characters become spaces; cut at {} |", "util/keys.ts MAX_LABEL_BYTES"],
    ["may hold it in turn for {} ({} of them at most)", "client/options.ts ms", "client/options.ts holders"],
    ["or after {} if nothing else keeps the process alive |", "client/release-queue.ts KEEP_ALIVE_MS"],
    [
      "| `interval` | {} | how often the store is asked, a duration of at least {} |",
      "leader/election.ts DEFAULT_INTERVAL_MS",
      "leader/election.ts MIN_INTERVAL_MS",
    ],
  ],
  "docs/reference/api/optimistic.md": [
    ["| `attempts` | {} |", "optimistic/optimistic.ts DEFAULT_ATTEMPTS"],
    ["| `minDelay` | {} |", "optimistic/optimistic.ts DEFAULT_MIN_DELAY_MS"],
    ["| `maxDelay` | {} |", "optimistic/optimistic.ts DEFAULT_MAX_DELAY_MS"],
  ],
  "docs/reference/api/postgres.md": [
    ["rechecked every {} to 250 ms.", "drivers/sql/driver.ts shortMs"],
    ["are rechecked every 25 to {}.", "drivers/sql/driver.ts longMs"],
    ["| `connectTimeout` | {} |", "drivers/connect-timeout.ts connectTimeout"],
    ["| `commandTimeoutMs` | {} |", "drivers/sql/options.ts DEFAULT_COMMAND_TIMEOUT_MS"],
    ["further waiting claims ask every {} |", "drivers/sql/advisory/own-claims.ts POLL_MS"],
  ],
  "docs/reference/api/mysql.md": [
    ["| `connectTimeout` | {} |", "drivers/connect-timeout.ts connectTimeout"],
    ["| `commandTimeoutMs` | {} |", "drivers/sql/options.ts DEFAULT_COMMAND_TIMEOUT_MS"],
    ["further waiting claims ask every {} |", "drivers/sql/advisory/own-claims.ts POLL_MS"],
  ],
  "docs/reference/api/sqlite.md": [
    ["| `connectTimeout` | {} |", "drivers/connect-timeout.ts connectTimeout"],
    ["| `commandTimeoutMs` | {} |", "drivers/sql/options.ts DEFAULT_COMMAND_TIMEOUT_MS"],
  ],
  "docs/reference/api/quorum.md": [
    ["never more than an eighth of a lease; default {}.", "drivers/quorum/driver.ts callTimeoutMs"],
    [
      "how long to try to reach a majority for the first time; default {}.",
      "drivers/connect-timeout.ts connectTimeout",
    ],
  ],
  "docs/reference/api/redis.md": [
    [
      "how long to try to reach the server for the first time; default {}.",
      "drivers/connect-timeout.ts connectTimeout",
    ],
    ["asks again to learn its outcome; default {}.", "drivers/redis/connection.ts commandTimeoutMs"],
    ["after a restart or a promotion); default {}.", "drivers/data-loss-guard.ts maxTtlMs"],
    ["less than `commandTimeoutMs`; default {}.", "drivers/redis/replica-acks.ts DEFAULT_TIMEOUT_MS"],
  ],
  "docs/reference/api/web-locks.md": [
    ["of all clients, at most {} locks and requests.", "web-locks/web-locks.ts MAX_LISTED"],
  ],
  "docs/guide/gateway.md": [
    ["its place is kept for `graceMs` ({}).", "gateway/place.ts WAIT_GRACE_MS"],
    ["its place is withdrawn after {} |", "gateway/place.ts WAIT_GRACE_MS"],
    ["is kept for the next request for at most {}.", "gateway/place.ts UNATTENDED_HOLD_MS"],
    ["withdraws their claims, for at most {} if the store", "gateway/gateway.ts CLOSE_TIMEOUT_MS"],
    ["share, at least {} random bytes |", "gateway/gateway-config.ts MIN_KEY_BYTES"],
  ],
  "docs/guide/redis.md": [
    ["| `callTimeoutMs` | {} |", "drivers/quorum/driver.ts callTimeoutMs"],
    ["| `connectTimeout` | {} |", "drivers/connect-timeout.ts connectTimeout"],
    ["| `commandTimeoutMs` | {} |", "drivers/redis/connection.ts commandTimeoutMs"],
    ["replicas that must acknowledge, within {} by default", "drivers/redis/replica-acks.ts DEFAULT_TIMEOUT_MS"],
    ["a release that is not answered does so for {}.", "client/release-queue.ts KEEP_ALIVE_MS"],
  ],
  "docs/guide/data-loss.md": [["the longest lease in use, {} by default", "drivers/data-loss-guard.ts maxTtlMs"]],
  "docs/guide/mysql.md": [
    ["a process asks every {}, and up to every 3 ms", "drivers/sql/driver.ts shortMs"],
    ["in a queue that moves; afterwards every {},", "drivers/sql/driver.ts longMs"],
  ],
  "docs/guide/postgres.md": [
    ["and rechecks waiting claims every {} to 250 ms with one statement", "drivers/sql/driver.ts shortMs"],
    ["blocks the calls that need them, each for {} at most", "drivers/sql/postgres/migration.ts lock_timeout"],
  ],
  "docs/guide/sqlite.md": [
    [
      "A busy file is asked again after {} to {};",
      "drivers/sql/sqlite/transactions.ts MIN_RETRY_MS",
      "drivers/sql/sqlite/transactions.ts MAX_RETRY_MS",
    ],
    [
      "- **Waiters poll**: every {} in their first second, then every {}.",
      "drivers/sql/sqlite/dialect.ts nextMs",
      "drivers/sql/sqlite/dialect.ts longMs",
    ],
  ],
  "docs/guide/advisory-locks.md": [
    ["but each wait begins again every {},", "drivers/sql/advisory/dialect.ts WAIT_MS"],
    ["At most {} (`maxWaitConnections`)", "drivers/sql/advisory/options.ts DEFAULT_MAX_WAIT_CONNECTIONS"],
    ["further claims ask again every {}.", "drivers/sql/advisory/own-claims.ts POLL_MS"],
    ["after `sessionMs` (default {}) without a statement", "drivers/sql/advisory/options.ts DEFAULT_SESSION_MS"],
  ],
  "docs/guide/zookeeper.md": [
    ["after {}, or after a session if that is shorter;", "drivers/zookeeper/client/zookeeper.ts MAX_REQUEST_MS"],
    ["and tries again within {} after that node is gone.", "drivers/zookeeper/queue.ts RETRY_SPREAD_MS"],
    [
      "for a random share of {}, 40 ms, ... {}.",
      "drivers/zookeeper/client/server-list.ts FIRST_BACKOFF_MS",
      "drivers/zookeeper/client/server-list.ts MAX_BACKOFF_MS",
    ],
    ["| `sessionMs` | {} |", "drivers/zookeeper/client/zookeeper.ts DEFAULT_SESSION_MS"],
    ["| `connectTimeout` | {} |", "drivers/connect-timeout.ts connectTimeout"],
    ["| `retry` | `exponential({}, 1_000)` |", "drivers/zookeeper/client/server-list.ts FIRST_BACKOFF_MS"],
  ],
  "docs/guide/cached-locks.md": [
    ["until their lease ends: {} by default", "client/options.ts ttl"],
    [
      "at first about {}, then up to about {}.",
      "client/cached-locks.ts FIRST_BACKOFF_MS",
      "client/cached-locks.ts MAX_BACKOFF_MS",
    ],
    ["for all its idle locks at once: every {},", "client/cached-locks.ts MIN_POLL_MS"],
    ["There a lock serves at most {} requests between two calls", "client/options.ts holders"],
  ],
  "docs/guide/cli.md": [
    ["during the first {} after each start", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["The path of the socket can have at most {}.", "os/user-directory.ts MAX_SOCKET_PATH_BYTES"],
    [
      "| `--ttl 1m` | the length of the lease, at least {}. Default: `session` on a Unix socket, {} elsewhere.",
      "util/duration.ts MIN_TTL_MS",
      "cli/acquire-flags.ts DEFAULT_LEASE_MS",
    ],
    ["`holdfast run` waits for it for {}.", "cli/commands/run/run.ts DETACH_TIMEOUT_MS"],
    ["grants no new locks for {} after its start.", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["Its output goes to `server.log`, at most {}.", "drivers/server/autostart.ts MAX_LOG_BYTES"],
    ["the time from one list to the next, at least {}.", "cli/commands/top/top.ts MIN_INTERVAL_MS"],
    ["A list has at most {} claims;", "cli/commands/top/top.ts MAX_CLAIMS"],
  ],
  "docs/guide/waiting-and-order.md": [
    ["then the waiters in order, at most {}.", "client/admin.ts MAX_LISTED"],
    [
      "may still hold the lock in turn, but only {} of them, and none may begin after {}.",
      "client/options.ts holders",
      "client/options.ts ms",
    ],
    ["the waiting process asks again {} later", "lock-table/recall.ts FIRST_RECHECK_MS"],
    ["The entries are dropped after {}.", "server/session/session-registry.ts WAITER_GRACE_MS"],
  ],
  "docs/guide/performance.md": [
    ["after each third of its `ttl`, {} by default.", "client/options.ts ttl"],
    ["instead of once for up to {} holders.", "client/options.ts holders"],
    ["once one does, {} holders and {} count.", "client/options.ts holders", "client/options.ts ms"],
    ["makes for a database has {} connections at most", "drivers/sql/clients/load.ts MAX_CONNECTIONS"],
  ],
  "docs/guide/faq.md": [
    ["willing to wait after a crash. The default is {}.", "client/options.ts ttl"],
    ["claims by default, {} for one client", "server/limits.ts claimsPerAccount"],
    ["and {} in the queue of one key", "server/limits.ts waitersPerKey"],
    ["for at most {} holders or {};", "client/options.ts holders", "client/options.ts ms"],
    ["waiting for the store for {} at most", "client/close-on-signal.ts CLOSE_TIMEOUT_MS"],
    ["The Holdfast server takes {} claims by default", "server/limits.ts claims"],
  ],
  "docs/guide/safety-and-fencing.md": [
    ["{} keys by default. Beyond that it forgets the key", "fencing/guard.ts maxKeys"],
    ["the longest earlier lease has passed: at most {}.", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    [
      "the longest lease of {} or less that was requested of the server since its start, {} with the default `ttl`",
      "server/storage/write-ahead.ts MAX_UNJOURNALED_MS",
      "client/options.ts ttl",
    ],
    ["each start pauses for {} (", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["a lease over {} is refused", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["every lease that is longer than {} or detached", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["A start reserves {} in advance", "server/local/startup-plan.ts DEFAULT_LEASE_MS"],
  ],
  "docs/guide/quick-start.md": [
    ["renewed while held. Default: {}", "client/options.ts ttl"],
    ["cannot be reached it waits for {} at most.", "client/client.ts CLOSE_TIMEOUT_MS"],
  ],
  "docs/guide/recipes/shutdown.md": [
    ["unless the store cannot be reached: then {} at most", "client/client.ts CLOSE_TIMEOUT_MS"],
    ["and waits for the store for {} at most.", "client/close-on-signal.ts CLOSE_TIMEOUT_MS"],
  ],
  "docs/guide/recipes/cron.md": [
    ["| Clocks differ | up to `clockSkew` ({}) is allowed for.", "cron/tick.ts clockSkew"],
    ["within `maxDelay` ({}) it may run the tick", "cron/tick.ts maxDelay"],
  ],
  "docs/guide/web-frameworks.md": [
    ["| all | `maxHold` has passed: {} unless you set it |", "middleware/request-runner.ts maxHold"],
  ],
  "docs/guide/fencing-your-data.md": [["two exceptions: beyond {} connections", "fencing/table.ts SHARED_ROWS"]],
  "docs/guide/optimistic.md": [
    ["retried after a random delay, {} attempts by default", "optimistic/optimistic.ts DEFAULT_ATTEMPTS"],
  ],
  "docs/guide/operations.md": [
    [
      "keeps its last {} usual events (placed, granted, released) and its last {} other events.",
      "server/events/event-log.ts capacity",
      "server/events/event-log.ts capacity",
    ],
    ["`show` prints {} events of a key", "cli/commands/show.ts DEFAULT_EVENTS"],
    ["have reconnected, for at most {} |", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
    ["or up to {} with `--events`.", "cli/commands/show.ts MAX_EVENTS"],
    ["`serve`: stopping took more than {} |", "cli/commands/serve/serve.ts DRAIN_TIMEOUT_MS"],
  ],
  "docs/guide/access.md": [
    ["A claim that waits keeps its place for {}.", "server/session/session-registry.ts WAITER_GRACE_MS"],
  ],
  "docs/reference/api/server.md": [
    ["(at most {} of path)", "server/net/listen-address.ts MAX_PATH_BYTES"],
    [
      "the server grants nothing for {} after each start, and leases over {}",
      "server/storage/write-ahead.ts MAX_UNJOURNALED_MS",
      "server/storage/write-ahead.ts MAX_UNJOURNALED_MS",
    ],
    ['skips the {} of `state: "none"`', "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
  ],
  "docs/guide/web-locks.md": [
    ["- **Names are keys**: 1 to {} of UTF-8", "util/keys.ts MAX_KEY_BYTES"],
    ["also those made without this API, at most {}.", "web-locks/web-locks.ts MAX_LISTED"],
  ],
  "docs/guide/leader-election.md": [
    ["in a short outage. The default is {}.", "client/options.ts ttl"],
    ["`label` is the option of the candidate, at most {}:", "util/keys.ts MAX_LABEL_BYTES"],
  ],
  "docs/guide/kubernetes.md": [
    ["than your longest locked section, and {} more", "client/client.ts CLOSE_TIMEOUT_MS"],
    ["the end of the lease, `ttl`, {} by default |", "client/options.ts ttl"],
  ],
  "docs/guide/flock.md": [
    [
      "for at most the longest lease ({} by default, never more than {}).",
      "client/options.ts ttl",
      "server/storage/write-ahead.ts MAX_UNJOURNALED_MS",
    ],
  ],
  "docs/guide/which-store.md": [
    ["after a crash nothing new for at most {} |", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
  ],
  "docs/guide/redis-failures.md": [
    ["one hash for each of {} buckets of keys", "drivers/redis/key-names.ts BUCKET_COUNT"],
    ["or admits up to {} readers", "drivers/redis/lua/lib/work.lua scanBudget"],
  ],
  "docs/guide/coming-from-curator.md": [
    ["for at most {} holders or {}.", "client/options.ts holders", "client/options.ts ms"],
  ],
  "docs/guide/coming-from-nodes.md": [["({} holders, {})", "client/options.ts holders", "client/options.ts ms"]],
  "docs/design/sessions-restart-recovery.md": [
    ["waiters are passed by and dropped after {}.", "server/session/session-registry.ts WAITER_GRACE_MS"],
    ["*Short* is up to {};", "server/storage/write-ahead.ts MAX_UNJOURNALED_MS"],
  ],
  "docs/reference/api/fencing.md": [["| `maxKeys` | {} |", "fencing/guard.ts maxKeys"]],
  "docs/reference/api/conformance.md": [["| `keys` | {} |", "conformance/options.ts keys"]],
  "docs/reference/api/driver.md": [
    ["at the end of the turn, at most {} in a call |", "client/release-queue.ts MAX_BATCH"],
  ],
  "docs/design/hand-off.md": [
    ["once it is *wanted*: {} holders and {}, counted", "client/options.ts holders", "client/options.ts ms"],
    ["follow each other in microtasks. After {} of them", "client/handoff-chain.ts MAX_CHAIN_MS"],
    ["which happens early then: after {}, 400 ms", "lock-table/recall.ts FIRST_RECHECK_MS"],
  ],
  "docs/design/queue-and-admission.md": [
    ["and after {} they are dropped.", "server/session/session-registry.ts WAITER_GRACE_MS"],
    ["A script passes at most {} of them;", "drivers/redis/lua/lib/admission.lua MAX_SKIPPED"],
  ],
  "docs/design/stores.md": [["Keys are spread over {} hash tags", "drivers/redis/key-names.ts BUCKET_COUNT"]],
  "docs/design/tokens.md": [["the highest token that it has seen for {} keys", "client/token-floors.ts MIN_KEYS"]],
  "docs/design/sql.md": [
    ["| `holdfast_1_buckets` | {} |", "drivers/sql/schema.ts BUCKET_COUNT"],
    [
      "for at most {}, or {} if the database is remote.",
      "drivers/sql/call-scheduler.ts NEARBY_ALONE_MS",
      "drivers/sql/call-scheduler.ts REMOTE_ALONE_MS",
    ],
    ["With none ahead the claim is rechecked every {},", "drivers/sql/driver.ts nextMs"],
    ["The interval doubles up to {} as long as", "drivers/sql/driver.ts shortMs"],
    ["after a second it is {}.", "drivers/sql/driver.ts longMs"],
    ["The client asks about idle claims every {} at first", "client/cached-locks.ts MIN_POLL_MS"],
  ],
  "docs/write-a-driver.md": [
    ["Answer that waiter a short `recheckMs` ({} at first", "lock-table/recall.ts FIRST_RECHECK_MS"],
  ],
};

/** Two heartbeats. */
const UNCHECKED_ROW = "| HTTP: a reader of events to which nothing can be sent |";

const UNITS: Readonly<Record<string, number>> = {
  ms: 1,
  s: 1_000,
  seconds: 1_000,
  m: 60_000,
  minutes: 60_000,
  h: 3_600_000,
  days: 86_400_000,
  bytes: 1,
  KiB: 1_024,
  MiB: 1_048_576,
};
const FIGURE = `(\\d+(?:,\\d{3})*(?:\\.\\d+)?)(?: (${Object.keys(UNITS).join("|")})\\b)?`;

function toPattern(sentence: string): RegExp {
  const parts = sentence.split("{}").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return new RegExp(parts.join(FIGURE), "g");
}

const readPage = (path: string): string => readFileSync(path, "utf8").replace(/\s+/g, " ");

/** The constant, parameter or property in that file; times in milliseconds. */
function readConstant(constant: string): number {
  const [file, name] = constant.split(" ") as [string, string];
  const source = readFileSync(`src/${file}`, "utf8");
  const number = '(?<number>\\d[\\d_.]*)(?: \\* (?<factor>\\d[\\d_]*))?|"(?<text>\\d+)(?<unit>ms|s|m|h)"';
  const declaration = new RegExp(`(?<!\\w)${name}(?: <const>|: \\w+)?(?: =|:| \\?\\?) (?:${number})`, "g");
  const values = Array.from(source.matchAll(declaration), ({ groups = {} }) => {
    const toNumber = (text = "1"): number => Number(text.replaceAll("_", ""));
    if (groups.text !== undefined) return toNumber(groups.text) * (UNITS[groups.unit as string] as number);
    return (toNumber(groups.number) * toNumber(groups.factor)) / (name.endsWith("_MICROS") ? 1_000 : 1);
  });
  if (new Set(values).size !== 1) throw new Error(`${constant} is not one number: ${values.join(", ")}`);
  return values[0] as number;
}

test.each(Object.keys(PAGES))("the figures in %s are those of the code", (path) => {
  const page = readPage(path);
  const wrong = (PAGES[path] as readonly Row[]).flatMap(([sentence, ...constants]) => {
    const matches = [...page.matchAll(toPattern(sentence))];
    if (matches.length === 0) return [`not found: ${sentence}`];
    const expected = constants.map(readConstant);
    return matches.flatMap(([found, ...figures]) => {
      const written = Array.from({ length: figures.length / 2 }, (_, index) => {
        const [number = "", unit = "ms"] = figures.slice(2 * index);
        return Number(number.replaceAll(",", "")) * (UNITS[unit] as number);
      });
      return `${written}` === `${expected}` ? [] : [`"${found}" has ${written}, the code ${expected}`];
    });
  });
  expect(wrong).toEqual([]);
});

test("each bound of a server that cannot be changed is compared with the code", () => {
  const path = "docs/guide/server.md";
  const [, table = ""] = readFileSync(path, "utf8").split("These cannot be changed:");
  const rows = table.split("\n").filter((line) => line.startsWith("| ") && /\d/.test(line));
  expect(rows.length).toBeGreaterThan(20);
  const patterns = (PAGES[path] as readonly Row[]).map(([sentence]) => toPattern(sentence));
  const unchecked = rows.filter((row) => !patterns.some((pattern) => row.search(pattern) !== -1));
  expect(unchecked).toEqual([expect.stringContaining(UNCHECKED_ROW)]);
});
