--[[ grace.lua — looks whether the store has forgotten, and notes it (lib/grace.lua). One trip, when a driver opens and
     after each break of its connection.
     KEYS  1 where to send the call
     ARGV  root, inbox, birth record, longest ttl
     Gives from when on new claims are granted (ms), and the store's ms ]]
--- include lib/prelude.lua
--- include lib/grace.lua

return { opensAt .. '', clock }
