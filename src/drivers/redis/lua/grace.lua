--[[ grace.lua — checks for a loss of data and records it (lib/grace.lua). One round trip, when a driver opens and after
     each break of its connection.
     KEYS  1 routes the call
     ARGV  the three of lib/prelude.lua
     Returns the time from which new claims are granted (ms), and the store's time (ms) ]]
--- include lib/prelude.lua
--- include lib/grace.lua

return { graceEndsAt .. '', nowMsText }
