-- A plain token bucket, as it is often written: what a script costs that knows one algorithm and one charge.
-- KEYS[1] bucket; ARGV rate a second, capacity, now in ms, time to live in s
local rate, capacity, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'tokens', 'lastRefill')
local tokens, last = tonumber(bucket[1]), tonumber(bucket[2])
if not tokens then
    tokens, last = capacity, now
end
tokens = math.max(0, math.min(capacity, tokens + (now - last) / 1000 * rate))
local allowed = 0
if tokens >= 1 then
    tokens, allowed = tokens - 1, 1
end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'lastRefill', now)
redis.call('EXPIRE', KEYS[1], tonumber(ARGV[4]))
return { allowed, math.floor(tokens), math.ceil((capacity - tokens) / rate) }
