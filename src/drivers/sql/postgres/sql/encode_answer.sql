/* encode_answer.sql — the answer for a live claim.
   Parameters  its token, number of tokens and end of lease; next_expiry of the walk; when a grace period ends (0: none
               is running); now
   Returns     "h <token> <tokens> <remaining ms> <store ms>" | "w <remaining ms> <recheck ms> <store ms>",
               in a grace period with another field: its end in ms */
create or replace function {encode_answer}(p_token bigint, p_token_count int, p_expires bigint, p_next_expiry bigint, p_grace_ends bigint, p_now bigint)
returns text language sql as $body$
  select case p_token
    when 0 then 'w ' || greatest(p_expires - p_now, 0) / 1000 || ' '
      || greatest((least(p_next_expiry, p_expires, nullif(p_grace_ends, 0)) - p_now + 999) / 1000, 1) || ' ' || p_now / 1000
    else 'h ' || p_token || ' ' || p_token_count || ' ' || greatest(p_expires - p_now, 0) / 1000 || ' ' || p_now / 1000
  end || case when p_grace_ends > 0 then ' ' || (p_grace_ends + 999) / 1000 else '' end
$body$;
