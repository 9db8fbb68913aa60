package deploy

// Reach says which entries of a cache a query reads (spec#model-reach). The zero value is all tokens up to and including the
// query's own.
type Reach struct {
	Window int64 `json:"window,omitempty"` // the last so many tokens, itself included
	Chunk  int64 `json:"chunk,omitempty"`  // those of its own chunk of so many tokens
	TopK   int64 `json:"topk,omitempty"`   // so many entries at most, as an index chooses
	Ratio  int64 `json:"ratio,omitempty"`  // an entry stands for so many tokens, once they are complete; 0: for one
}

// Pairs counts queries times the entries they read, of a request with c tokens in the cache and n new ones (1).
func (r Reach) Pairs(c, n int64) int64 {
	switch {
	case r.Chunk > 0:
		return chunkPairs(c+n, r.Chunk) - chunkPairs(c, r.Chunk)
	case r.Ratio > 0:
		return r.ratioPairs(c+n) - r.ratioPairs(c)
	}
	if most := r.Window + r.TopK; most > 0 {
		below := max(0, min(n, most-c)) // queries that read all before them
		return below*c + below*(below+1)/2 + (n-below)*most
	}
	return n*c + n*(n+1)/2
}

// chunkPairs is the pairs of the first n tokens in chunks of size.
func chunkPairs(n, size int64) int64 {
	rest := n % size
	return n/size*(size*(size+1)/2) + rest*(rest+1)/2
}

// ratioPairs is the sum of floor(j/ratio), at most TopK, over the first n tokens.
func (r Reach) ratioPairs(n int64) int64 {
	full := n / r.Ratio // entries that token n reads
	if r.TopK > 0 && full > r.TopK {
		return r.ratioPairs1(r.TopK*r.Ratio-1) + (n-r.TopK*r.Ratio+1)*r.TopK
	}
	return r.ratioPairs1(n)
}

func (r Reach) ratioPairs1(n int64) int64 {
	full := n / r.Ratio
	return r.Ratio*(full*(full-1)/2) + (n-full*r.Ratio+1)*full
}

// Read counts the entries that the n new tokens read together: each once, however many of them read it.
func (r Reach) Read(c, n int64) int64 {
	entries := c + n
	switch {
	case r.Chunk > 0:
		return min(entries, c%r.Chunk+n)
	case r.Window > 0:
		return min(entries, r.Window-1+n)
	case r.Ratio > 0:
		entries /= r.Ratio
	}
	if r.TopK > 0 {
		return min(entries, r.TopK*n)
	}
	return entries
}

// Approximate is pairs and entries read of so many requests where sums over them alone are known: their queries, the pairs
// and the tokens that full attention has. It is exact where all requests are on one side of the reach.
func (r Reach) Approximate(requests, queries, pairs, tokens float64) (p, read float64) {
	if r.Ratio > 0 {
		pairs, tokens = pairs/float64(r.Ratio), tokens/float64(r.Ratio)
	}
	p, read = pairs, tokens
	if most := float64(r.Window + r.TopK + r.Chunk); most > 0 {
		p = min(pairs, most*queries)
		if read = min(tokens, float64(most*queries)); r.TopK == 0 {
			read = min(tokens, float64((most-1)*requests)+queries)
		}
	}
	return p, read
}

// MaxReaches is how many kinds of reach beside the full one a model may have: DeepSeek-V4 has four.
const MaxReaches = 4
