{{- define "streamer.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "streamer.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "streamer.labels" -}}
{{ include "streamer.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "streamer.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- /* streamer.yaml: what you configured, with the places and ports that the chart needs. */ -}}
{{- define "streamer.config" -}}
{{- $name := include "streamer.name" . }}
{{- $inside := printf "%s.%s" $name .Release.Namespace }}
{{- $hosts := list $name $inside (printf "%s.svc" $inside) (printf "%s.svc.cluster.local" $inside) }}
{{- $tokens := dict "file" (ternary "/etc/streamer-secrets/tokens.json" "/var/lib/streamer/tokens.json" (ne .Values.secretFiles "")) }}
{{- $api := dict "address" "0.0.0.0" "port" 8474 "tokens" $tokens }}
{{- $metrics := dict "enabled" true "address" "0.0.0.0" "port" 9464 }}
{{- $needed := dict "service" (dict "data_dir" "/var/lib/streamer/data") "api" $api "metrics" $metrics }}
{{- $config := mergeOverwrite (dict) (deepCopy $needed) (deepCopy .Values.config) }}
{{- $_ := set $config.api "hosts" (concat $hosts (dig "api" "hosts" list .Values.config) | uniq) }}
{{- $config | toYaml }}
{{- end }}
