{{- define "deltaq.name" -}}
{{- if contains "deltaq" .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-deltaq" .Release.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "deltaq.scheme" -}}
http{{ if .Values.tls.existingSecret }}s{{ end }}
{{- end }}

{{- define "deltaq.selector" -}}
app.kubernetes.io/name: deltaq
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "deltaq.labels" -}}
{{ include "deltaq.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "deltaq.tokensSecret" -}}
{{- .Values.tokens.existingSecret | default (printf "%s-tokens" (include "deltaq.name" .)) }}
{{- end }}

{{/* A setting as the text of its environment variable. Numbers of a values file are floats: printed as they are, 1048576 would be 1.048576e+06. */}}
{{- define "deltaq.text" -}}
{{- if kindIs "string" . }}{{ . }}
{{- else if kindIs "slice" . }}{{ toJson . }}
{{- else if kindIs "float64" . }}{{ if eq (floor .) . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- else }}{{ . }}
{{- end }}
{{- end }}

{{/* The settings of a section as environment variables: dict "prefix" PREFIX "section" MAP. */}}
{{- define "deltaq.settings" -}}
{{- range $name, $value := .section }}
{{- $variable := printf "%s%s" $.prefix (upper $name) }}
{{- if kindIs "map" $value }}
{{- include "deltaq.settings" (dict "prefix" (printf "%s__" $variable) "section" $value) }}
{{- else }}
- name: {{ $variable }}
  value: {{ include "deltaq.text" $value | quote }}
{{- end }}
{{- end }}
{{- end }}
