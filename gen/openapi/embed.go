// Package openapi carries the OpenAPI document that buf generates from proto/ (OpenAPI
// 2.0). daemon/gateway adjusts and serves it.
package openapi

import _ "embed"

// Document is the generated document.
//
//go:embed agentix.swagger.json
var Document []byte
