package deploy

// Release is the engine's vLLM release, major and minor; ok is false when the
// version does not say.
func (e *Engine) Release() (v [2]int, ok bool) { return parseVersion(e.VLLMVersion) }
